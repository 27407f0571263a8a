"""The course's code that enters a learner's process in grading, and no other.

A check in the notebook uses it, too, without a sandbox.
It imports torch, safetensors and itself; nothing in it knows a test, an answer or a lab.
"""
