"""Where trials get their samples from: text and images, the user's own or made offline."""
