"""The learner's engine behind the chat-completions interface that client libraries speak."""
