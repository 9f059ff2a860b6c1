# Installed later in this file's life: see the install helper.
