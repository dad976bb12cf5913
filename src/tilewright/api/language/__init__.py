"""Language models that are spoken to: text to tokens, tokens to text, sampling, chats, a server."""
