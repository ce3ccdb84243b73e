"""Procedural memory for AI agents: skills that an agent learns, proves and keeps."""

from __future__ import annotations
