"""The learner's project as files: submit, reset, open in JupyterLab."""
