"""How attention is computed: kernels, rotary positions, latent and cross attention."""
