# shellcheck shell=bash
# tools/pip_cause.sh: sourced by tools/python_env.sh.
#
#   pip_cause LOG     prints in one line why pip failed: the first cause that its log names, in words, and what to do.
#                     pip's own last line often names a consequence: no connection ends in "No matching distribution".

pip_cause() {
	local log=$1 found
	if found=$(grep -m1 -oE 'No space left on device' "$log"); then
		printf 'the disk is full (%s)\n' "$found"
	elif found=$(grep -m1 -oE 'CERTIFICATE_VERIFY_FAILED\] [^()]*[^() ]' "$log"); then
		printf 'the certificate of the package index is not trusted (%s); PIP_CERT=FILE names the certificates to trust\n' \
			"${found#*] }"
	elif found=$(grep -m1 -oE "SSLError\(.*" "$log"); then
		printf 'no secure connection to the package index (%.120s)\n' "$found"
	elif grep -qE 'ProxyError|Tunnel connection failed' "$log"; then
		found=$(grep -m1 -oE "(Tunnel connection failed:|\[Errno -?[0-9]+\]) [^')]*" "$log" | head -1)
		printf 'the proxy gives no connection to the package index (%s); see https_proxy\n' "${found:-it does not say why}"
	elif found=$(grep -m1 -oE 'NewConnectionError.*|ConnectTimeoutError.*|ReadTimeoutError.*' "$log"); then
		printf '%s\n' "$found" | sed -E "s/.*(\[Errno -?[0-9]+\] [^'\")]*).*/\1/; s/.*((Read|connect) time[^'\")]*).*/\1/" |
			sed 's/.*/no connection to the package index (&); PIP_INDEX_URL names another, https_proxy a proxy/'
	elif found=$(grep -m1 -oE '[0-9]{3} (Client|Server) Error[^>]*' "$log"); then
		printf 'the package index refuses (%.120s)\n' "$found"
	elif found=$(sed -n 's/.*satisfies the requirement \(.*\) (from versions: none).*/\1/p' "$log" | grep -m1 .); then
		printf 'the package index has no %s; PIP_INDEX_URL names another index\n' "$found"
	elif found=$(sed -n 's/.*satisfies the requirement \(.*\) (from versions.*/\1/p' "$log" | grep -m1 .); then
		printf 'the package index has no version that fits %s\n' "$found"
	elif grep -q 'ResolutionImpossible' "$log"; then
		found=$(sed -n 's/^ERROR: Cannot install \(.*\) because these .*/\1/p' "$log" | grep -m1 .)
		printf 'the package index has not all the versions asked for (of %s); PIP_INDEX_URL names another index\n' \
			"${found:-the packages}"
	else
		found=$(grep -m1 '^ERROR' "$log" || grep -v '^WARNING' "$log" | tail -1)
		printf '%.200s\n' "${found#ERROR: }"
	fi
}
