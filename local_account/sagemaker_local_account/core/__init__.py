"""What every other folder uses: the state folder, errors, image names, safe paths, and the patches of moto."""
