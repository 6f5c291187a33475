plugin_LTLIBRARIES += plugins/regularizer_z_loss.la
plugins_regularizer_z_loss_la_SOURCES = %D%/z_loss.c
plugins_regularizer_z_loss_la_LDFLAGS = $(plugin_ldflags)

check_PROGRAMS += plugins/regularizer/z_loss/z_loss_test
plugins_regularizer_z_loss_z_loss_test_SOURCES = %D%/z_loss_test.c $(plugin_test_sources)
plugins_regularizer_z_loss_z_loss_test_LDADD = $(test_ldadd)
