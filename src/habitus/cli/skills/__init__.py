"""Commands about skills: listing, writing, finding, importing, improving, and what they bring along."""
