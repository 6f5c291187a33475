dist_man_MANS = \
    %D%/man/ballast-check.1 \
    %D%/man/ballast-data.1 \
    %D%/man/ballast-doctor.1 \
    %D%/man/ballast-plugin.1 \
    %D%/man/ballast-plugins.1 \
    %D%/man/ballast-reduce.1 \
    %D%/man/ballast-report.1 \
    %D%/man/ballast.1 \
    %D%/man/ballast-train.1 %D%/man/ballast-weights.1 %D%/man/ballast-config.5

bashcompletiondir = $(datadir)/bash-completion/completions
install-data-local:
	$(MKDIR_P) $(DESTDIR)$(bashcompletiondir)
	$(INSTALL_DATA) $(srcdir)/docs/ballast.bash $(DESTDIR)$(bashcompletiondir)/ballast
uninstall-local:
	rm -f $(DESTDIR)$(bashcompletiondir)/ballast

sbatchdir = $(pkgdatadir)/slurm
dist_sbatch_DATA = slurm/matrix.sbatch slurm/train.sbatch
EXTRA_DIST += %D%/ballast.bash %D%/cluster.md %D%/logits.png %D%/tutorial.md %D%/plugins.md %D%/reductions.md
