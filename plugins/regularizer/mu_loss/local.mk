plugin_LTLIBRARIES += plugins/regularizer_mu_loss.la
plugins_regularizer_mu_loss_la_SOURCES = %D%/mu_loss.c %D%/../columns.h
plugins_regularizer_mu_loss_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/mu_loss/mu_loss_test
plugins_regularizer_mu_loss_mu_loss_test_SOURCES = %D%/mu_loss_test.c $(plugin_test_sources)
plugins_regularizer_mu_loss_mu_loss_test_LDADD = $(test_ldadd)
