"""The pages and tables that an instructor reads."""
