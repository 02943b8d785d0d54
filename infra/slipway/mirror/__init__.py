"""Mirrors: all that a release needs in one folder, which any web server can serve.

    <folder>/
        slipway-mirror.asc          the mirror's public key
        private/key.asc             its private key (0600), never served
        releases/<id>.json, .asc    what a release needs of the folder, with digests, signed
        apt/                        an apt repository, signed: a suite `<os>-<id>` for each
        engines/<name>/<version>-<digest12>/   as in the controller's cache
        images/                     OCI archives
        bundles/                    what hosts run their playbooks with
        files/<digest12>/           other published files
        .work/                      half-done downloads, never served

A folder can hold several releases: hosts come from one and go to another.
"""
