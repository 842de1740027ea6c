"""The trial datastore: takes the samples of trials, keeps them, and serves them."""
