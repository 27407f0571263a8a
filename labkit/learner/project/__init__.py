"""The learner's files: submit, reset, update, open in JupyterLab."""
