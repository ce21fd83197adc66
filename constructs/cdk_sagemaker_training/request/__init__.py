"""The CreateTrainingJob request: the props, the rules between them, and what is made of them."""
