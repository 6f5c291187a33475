# BL_SANITIZER: --enable-sanitizer=address,undefined (or thread) instruments everything.
AC_DEFUN([BL_SANITIZER], [
AC_ARG_ENABLE([sanitizer],
    [AS_HELP_STRING([--enable-sanitizer=LIST], [build with -fsanitize=LIST, e.g. address,undefined])],
    [], [enable_sanitizer=no])
bl_sanitizer=
SANITIZER_CFLAGS=
AS_IF([test "x$enable_sanitizer" != xno && test "x$enable_sanitizer" != xyes],
    [bl_sanitizer=$enable_sanitizer
     SANITIZER_CFLAGS="-fsanitize=$enable_sanitizer -fno-omit-frame-pointer -fno-sanitize-recover=all"
     AC_DEFINE([BL_SANITIZED], [1], [Define when built with a sanitizer.])])
AC_SUBST([SANITIZER_CFLAGS])
])
