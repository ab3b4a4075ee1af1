"""Reports over run folders: what was measured, in words, tables and curves; needs nothing of the learner."""
