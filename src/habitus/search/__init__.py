"""One search index for skills, memory and tools: lexical and semantic, offline; it learns from use and may abstain."""
