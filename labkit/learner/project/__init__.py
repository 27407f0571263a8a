"""The learner's project as files: submit, reset, restore, open in JupyterLab."""
