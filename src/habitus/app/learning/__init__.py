"""Use cases of learning: lessons, climbs to the next stage, evidence, curation, mining, self-play and trials."""
