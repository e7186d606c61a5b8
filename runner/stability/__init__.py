"""What changes a gradient (clip) and what guards a step."""
