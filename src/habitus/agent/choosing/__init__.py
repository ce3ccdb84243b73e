"""What a conversation is offered: selected skills, why each is where it is, and what is withheld at random."""
