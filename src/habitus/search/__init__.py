"""One index for skills, memory and tools: lexical and semantic, offline, and it knows when nothing fits."""

from __future__ import annotations
