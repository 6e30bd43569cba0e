/* fuzz/fuzz_trainer.c: any bytes as a pickle, as a Lightning checkpoint (a zip with a pickle), or as a
 * trainer_state.json, must give consistent facts or none, never a fault, and nothing is executed. Built by
 * fuzz/run.sh, and run over a generated corpus by tests/checkpoint. */
#include "checkpoint/pickle.h"
#include "checkpoint/writer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bounds {
	const char *begin, *end;
};

static void check(const struct bounds *bounds, const struct neap_pickled *value)
{
	if (value->type > CHECKPOINT_PICKLE_ARGUMENTS || value->type == NEAP_PICKLE_MARK ||
	    value->detail > CHECKPOINT_PICKLE_BFLOAT16)
		abort();
	if ((value->type == NEAP_PICKLE_TEXT || value->type == CHECKPOINT_PICKLE_GLOBAL) &&
	    (value->text < bounds->begin || value->text > bounds->end ||
	     value->length > (size_t)(bounds->end - value->text)))
		abort();
}

static void see(void *context, const struct neap_pickled *name, const struct neap_pickled *items, size_t count)
{
	check(context, name);
	if (count == 0 || count % 2)
		abort();
	for (size_t i = 0; i < count; i++)
		check(context, &items[i]);
}

static void scan(const char *text, size_t size)
{
	struct bounds bounds = {text, text + size};
	const struct checkpoint_pickle_visitor visitor = {.items = see, .context = &bounds};
	struct checkpoint_record record = {0};
	struct neap_error err = {0};
	enum neap_status status = checkpoint_pickle_scan(text, size, &visitor, &err);

	if (status && (status != err.status || err.position > size || !err.message[0]))
		abort();
	checkpoint_read_arguments(text, size, &record);
	if (strlen(record.metric) >= sizeof record.metric || (record.metric[0] && !record.mode))
		abort();
}

static void check_record(const struct checkpoint_record *record)
{
	double value;

	if (strlen(record->best) >= sizeof record->best || strchr(record->best, '/') ||
	    strlen(record->metric) >= sizeof record->metric || record->score_count > 4096)
		abort();
	for (size_t i = 0; i < record->score_count; i++)
		if (!checkpoint_record_score(record, record->scores[i].name, &value))
			abort();
}

static void read_archive(const uint8_t *data, size_t size)
{
	struct checkpoint_records records = {0};
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, data, size) == (ssize_t)size && !checkpoint_read_callbacks(fd, &records))
		abort();
	for (size_t i = 0; i < records.count; i++)
		check_record(&records.at[i]);
	checkpoint_records_fini(&records);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct checkpoint_record record = {0};
	char *text = malloc(size + 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	scan(text, size);
	if (checkpoint_read_state(text, size, &record) == NEAP_OK)
		check_record(&record);
	read_archive(data, size);
	free(text);
	return 0;
}
