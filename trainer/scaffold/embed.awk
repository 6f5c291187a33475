# Makes one C array of texts of the files it is given: {file name, contents}.
BEGIN {
    print "/* Made by embed.awk. */"
    print "#include \"scaffold/scaffold.h\""
    print "const struct bl_template bl_templates[] = {"
}
FNR == 1 {
    if (NR > 1)
        print "    },"
    name = FILENAME
    sub(/.*\//, "", name)
    printf "    {\"%s\",\n", name
}
{
    gsub(/["\\]/, "\\\\&")
    printf "     \"%s\\n\"\n", $0
}
END {
    print "    },"
    print "    {0, 0},"
    print "};"
}
