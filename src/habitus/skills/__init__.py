"""Skills: their data model, formats, layers, stores, selection, review and sources."""
