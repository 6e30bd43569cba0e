/* fuzz/fuzz_sidecar.c: any bytes as a file of metrics, or as a checkpoint's name, must give numbers with words or an
 * error with its place, never a fault. Built with libFuzzer (clang -fsanitize=fuzzer,address -Iinclude -Isrc
 * fuzz/fuzz_sidecar.c src/checkpoint/sidecar.c src/checkpoint/name.c src/base/...), and run over a generated corpus
 * by tests/checkpoint. */
#include "checkpoint/sidecar.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void see(void *context, const char *word, unsigned depth, double value)
{
	(void)context;
	(void)value;
	if (!word[0] || strlen(word) >= CHECKPOINT_WORD_CAPACITY || depth > 64)
		abort();
}

static void scan(bool yaml, const char *text, size_t length)
{
	const struct checkpoint_sidecar_visitor visitor = {.number = see};
	struct neap_error err = {0};
	enum neap_status status = (yaml ? checkpoint_yaml_scan : checkpoint_json_scan)(text, length, &visitor, &err);

	if (status && (status != NEAP_EPARSE || err.line == 0 || err.column == 0 || !err.message[0]))
		abort();
}

static void read_name(const char *name)
{
	struct checkpoint_number number;
	enum checkpoint_count kind;
	uint64_t count;
	double value;
	char beside[512], word[CHECKPOINT_WORD_CAPACITY], metric[CHECKPOINT_WORD_CAPACITY];

	for (const char *at = name, *before = NULL; checkpoint_number_next(&at, &number); before = at)
		if (at == before || at > name + strlen(name) || strlen(number.word) >= sizeof number.word)
			abort();
	if (checkpoint_count_read(name, &kind, &count) && (kind >= CHECKPOINT_COUNTS || count == NEAP_STEP_UNKNOWN))
		abort();
	checkpoint_word_normalize(name, strlen(name), word);
	checkpoint_metric_known(word, metric);
	checkpoint_metric_read(name, "val_loss", &value);
	checkpoint_classify(name, false, NULL);
	checkpoint_classify(name, true, "*");
	checkpoint_is_named(name);
	for (size_t n = 0; checkpoint_sidecar_name(name, n, beside, sizeof beside); n++)
		if (strlen(beside) >= sizeof beside)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	scan(false, text, size);
	scan(true, text, size);
	read_name(text);
	free(text);
	return 0;
}
