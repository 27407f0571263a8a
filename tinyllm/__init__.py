"""The package that you fill in, lab by lab: Qwen3 from scratch.

Running an exercise cell of a notebook writes it into the module of its lab. You may as well
edit the modules by hand and run `tinyllm check 1.2` in a terminal.
"""
