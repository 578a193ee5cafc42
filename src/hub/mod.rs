//! Models by name: the folders in which other programs keep them, and fetching those that are in none.
