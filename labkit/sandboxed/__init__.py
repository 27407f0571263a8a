"""Exactly what enters the learner's process in grading, as it lies here.

It imports torch, safetensors and itself; nothing in it knows a test, an answer or a lab.
"""
