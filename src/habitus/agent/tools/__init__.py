"""The agent's tools by subject: each is built by a function from its dependencies and an arguments model."""
