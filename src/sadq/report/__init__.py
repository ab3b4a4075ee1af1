"""Reports on run folders: what was measured, in words, charts and tables; imports scores and presets, no learning."""
