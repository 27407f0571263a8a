"""A small hub: each learner is a user of the system, with a home that nobody else reads."""

c = get_config()  # noqa: F821
c.JupyterHub.bind_url = "http://0.0.0.0:8000"  # put a server that speaks https in front of it
c.Authenticator.allow_all = True  # all who have a password on this machine
c.Spawner.environment = {"OMP_NUM_THREADS": "1"}  # torch takes every core otherwise
c.Spawner.http_timeout = 120
