"""Reports on run folders: what was measured, in words, tables and curves; imports `experiment.scores` and presets, no learning."""
