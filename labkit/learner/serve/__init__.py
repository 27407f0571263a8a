"""A server: the learner's engine behind the chat-completions interface of client libraries."""
