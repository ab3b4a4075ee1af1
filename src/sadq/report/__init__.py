"""Reports over run folders: what was measured, in words, tables and curves; of the library it imports `experiment.scores`."""
