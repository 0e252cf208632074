#!/usr/bin/env bash
# with-secrets COMMAND…: sets NAME from the file that NAME_FILE names, for each such variable, and becomes COMMAND.
#
# Secrets stay out of compose files, manifests and `docker inspect`; Dagster and PostgreSQL's client want them as variables.
set -eu
for variable in $(compgen -e); do
    [[ $variable == *_FILE ]] || continue
    name=${variable%_FILE} file=${!variable}
    # Variables that merely end like this, and already set ones, are left alone.
    [[ -z ${!name:-} && -n $file ]] || continue
    case $name in
    PGPASSWORD | DAGSTER_PG_PASSWORD | AWS_ACCESS_KEY_ID | AWS_SECRET_ACCESS_KEY) ;;
    *) continue ;;
    esac
    [[ -r $file ]] || { echo "with-secrets: $variable names $file, which cannot be read as user $(id -u)" >&2; exit 1; }
    export "$name=$(<"$file")"
done
exec "$@"
