/* cli/checkpoints_report.c: see the header. */
#include "cli/checkpoints_report.h"

#include "base/clock.h"
#include "base/units.h"
#include "cli/print.h"
#include "report/cells.h"
#include "store/json_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#define SCHEMA      1
#define NAME_WIDTH  44
#define NAME_COLUMN 21 /* where names begin */
#define PARTS_MOST  5

/* A name, padded to that many columns. */
static void print_name(const char *name, size_t width)
{
	const char *text = NEAP_PRINTABLE(name);

	fputs(text, stdout);
	for (size_t columns = neap_report_width(text, strlen(text)); columns < width; columns++)
		putchar(' ');
}

static size_t name_width(const struct neap_retention_plan *plan)
{
	size_t widest = 0;

	for (size_t i = 0; i < plan->count; i++) {
		const char *text = NEAP_PRINTABLE(plan->entries[i].name);
		size_t columns = neap_report_width(text, strlen(text));

		widest = columns > widest ? columns : widest;
	}
	return widest < NAME_WIDTH ? widest : NAME_WIDTH;
}

static const char *plural(size_t count) { return count == 1 ? "" : "s"; }

static void format_time(uint64_t seconds, char text[32])
{
	time_t when = (time_t)seconds;
	struct tm local;

	if (!localtime_r(&when, &local) || strftime(text, 32, "%Y-%m-%d %H:%M", &local) == 0)
		snprintf(text, 32, "%" PRIu64, seconds);
}

/* Prints the metric by which the best were chosen, and why it was taken. */
static void print_best(const struct neap_retention_plan *plan, size_t count)
{
	const char *mode = plan->mode == NEAP_METRIC_MIN ? "lower" : "higher";

	if (count == 0)
		return;
	if (plan->newest_for_best && plan->metric[0])
		printf("; no %s was found: the newest count as the best", NEAP_PRINTABLE(plan->metric));
	else if (plan->newest_for_best)
		printf("; no metric was found: the newest count as the best");
	else if (plan->metric[0])
		printf("; best by %s (%s is better)", NEAP_PRINTABLE(plan->metric), mode);
	else
		return;
	if (plan->source[0])
		printf(": %s", NEAP_PRINTABLE(plan->source));
	else if (plan->newest_for_best)
		return;
	else if (plan->metric_inferred)
		fputs(": most of them have it; --metric and --mode choose another", stdout);
	else if (plan->mode_inferred)
		fputs(": by its name; --mode chooses the other", stdout);
}

static void print_head(const struct neap_retention_plan *plan)
{
	char size[NEAP_UNITS_CAPACITY];
	size_t count = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < plan->count; i++) {
		if (plan->entries[i].facts & NEAP_CHECKPOINT_UNFINISHED)
			continue;
		count++;
		bytes += plan->entries[i].bytes;
	}
	print_name(plan->folder, 0);
	printf(": %zu checkpoint%s, %s", count, plural(count), neap_size_format(bytes, size));
	print_best(plan, count);
	putchar('\n');
	if (plan->order_disagrees)
		puts("  the highest step is not the youngest file: both count as the newest");
	if (plan->link_count > 0)
		printf("  %zu symbolic link%s stay%s, and so does what %s\n", plan->link_count,
		       plural(plan->link_count), plan->link_count == 1 ? "s" : "",
		       plan->link_count == 1 ? "it names" : "they name");
}

/* Prints a line for each part; only a few, if there are many. */
static void print_parts(const struct neap_retention_entry *entry)
{
	size_t shown = entry->part_count <= PARTS_MOST + 1 ? entry->part_count : PARTS_MOST;

	for (size_t i = 1; i < shown; i++) {
		printf("%*s+ ", NAME_COLUMN - 2, "");
		print_name(entry->parts[i].name, 0);
		putchar('\n');
	}
	if (shown < entry->part_count)
		printf("%*s+ %zu more\n", NAME_COLUMN - 2, "", entry->part_count - shown);
}

/* Whether the disk has no room left for one more checkpoint like the largest of these. */
static bool is_short(const struct neap_retention_plan *plan, uint64_t *ret_left)
{
	uint64_t largest = 0;
	struct statvfs disk;

	for (size_t i = 0; i < plan->count; i++)
		largest = plan->entries[i].bytes > largest ? plan->entries[i].bytes : largest;
	if (statvfs(plan->folder, &disk) != 0)
		return false;
	*ret_left = (uint64_t)disk.f_bavail * disk.f_frsize;
	return *ret_left < largest;
}

/* Prints the last line of a dry run: how much becomes free, and when. What is in the trash still takes its space. */
static void print_would(const struct neap_retention_plan *plan, const struct neap_retention_options *rules)
{
	char size[NEAP_UNITS_CAPACITY], freed[NEAP_UNITS_CAPACITY], left[NEAP_UNITS_CAPACITY], until[32];
	uint64_t left_bytes;

	neap_size_format(plan->drop_bytes, size);
	neap_size_format(plan->freed_bytes, freed);
	if (plan->drop_count == 0) {
		puts("Nothing would be deleted");
		return;
	}
	if (rules->trash_ns == 0) {
		printf("Would delete %zu checkpoint%s, %s, for good: %s become free at once\n", plan->drop_count,
		       plural(plan->drop_count), size, freed);
		return;
	}
	format_time(plan->made_ns / NEAP_NS_PER_S + rules->trash_ns / NEAP_NS_PER_S, until);
	printf("Would move %zu checkpoint%s, %s, to ", plan->drop_count, plural(plan->drop_count), size);
	print_name(plan->folder, 0);
	printf("/.neap-trash: the first cleanup after %s frees %s\n", until, freed);
	if (is_short(plan, &left_bytes))
		printf("The disk has %s left: with --trash-ttl 0 --yes the same command frees %s now\n",
		       neap_size_format(left_bytes, left), freed);
}

void checkpoints_print_plan(const struct checkpoints_folder *folder, const struct neap_retention_options *rules,
			    bool dry_run)
{
	const struct neap_retention_plan *plan = &folder->plan;
	char size[NEAP_UNITS_CAPACITY], reason[256], until[32];
	size_t width = name_width(plan);

	print_head(plan);
	for (size_t i = 0; i < plan->count; i++) {
		const struct neap_retention_entry *entry = &plan->entries[i];

		printf("  %-6s  %9s  ", entry->drop ? "DELETE" : "KEEP", neap_size_format(entry->bytes, size));
		print_name(entry->name, width);
		printf("  %s\n", NEAP_PRINTABLE(neap_retention_reason_text(plan, rules, i, reason, sizeof reason)));
		print_parts(entry);
	}
	if (plan->over_count > 0)
		printf("  the checkpoints that must stay exceed --max %" PRIu64 " by %" PRIu64 "\n",
		       rules->max_checkpoints, plan->over_count);
	if (plan->over_bytes > 0)
		printf("  the checkpoints that must stay exceed --max-total-size by %s\n",
		       neap_size_format(plan->over_bytes, size));
	if (folder->below_folders > 0)
		printf("  left alone: %s%zu checkpoint%s in %zu folder%s below; --recursive takes them too\n",
		       folder->below_incomplete ? "at least " : "", folder->below_checkpoints,
		       plural(folder->below_checkpoints), folder->below_folders, plural(folder->below_folders));
	if (plan->trash_count > 0) {
		format_time(plan->trash_until_s, until);
		printf("  in the trash: %zu checkpoint%s, %s; the first is deleted after %s\n", plan->trash_count,
		       plural(plan->trash_count), neap_size_format(plan->trash_bytes, size), until);
	}
	if (dry_run)
		print_would(plan, rules);
}

/* Prints a word as it can be pasted into a shell. */
static void print_shell_word(const char *word)
{
	const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,";

	if (word[0] && word[strspn(word, plain)] == '\0') {
		fputs(word, stdout);
		return;
	}
	putchar('\'');
	for (const char *at = NEAP_PRINTABLE(word); *at; at++) {
		if (*at == '\'')
			fputs("'\\'", stdout);
		putchar(*at);
	}
	putchar('\'');
}

void checkpoints_print_applied(const struct checkpoints_folder *folder)
{
	const struct neap_retention_result *result = &folder->result;
	char size[NEAP_UNITS_CAPACITY], until[32];
	uint64_t left_bytes;

	if (result->moved_count > 0) {
		printf("Moved %zu checkpoint%s, %s, to ", result->moved_count, plural(result->moved_count),
		       neap_size_format(result->moved_bytes, size));
		print_name(folder->name, 0);
		format_time(result->trash_until_s, until);
		if (result->deleted_count >= result->moved_count)
			puts("/.neap-trash, which was emptied");
		else
			printf("/.neap-trash; --restore brings them back until %s; their space is freed after that\n",
			       until);
	}
	if (result->moved_count > result->deleted_count && is_short(&folder->plan, &left_bytes)) {
		printf("The disk has %s left; this frees the trash now: neap checkpoints ",
		       neap_size_format(left_bytes, size));
		print_shell_word(folder->name);
		puts(" --empty-trash --yes");
	}
	if (result->deleted_count > 0)
		printf("Deleted %zu checkpoint%s for good: %s became free\n", result->deleted_count,
		       plural(result->deleted_count), neap_size_format(result->deleted_bytes, size));
	for (size_t i = 0; i < folder->plan.count; i++) {
		const struct neap_retention_entry *entry = &folder->plan.entries[i];

		if (entry->done < NEAP_RETENTION_GONE)
			continue;
		fputs("  not moved: ", stdout);
		print_name(entry->name, 0);
		printf(": %s\n", entry->done == NEAP_RETENTION_GONE      ? "it is gone already"
				 : entry->done == NEAP_RETENTION_CHANGED ? "it has changed since, or is in use"
									 : strerror(entry->cause));
	}
}

void checkpoints_print_restored(const char *folder, const struct neap_retention_result *result)
{
	if (result->restored_count == 0)
		return;
	printf("Restored %zu checkpoint%s to ", result->restored_count, plural(result->restored_count));
	print_name(folder, 0);
	puts(". The same rules would remove them again: --pin them, or make a file NAME.pin");
}

/* Counts the checkpoints that stay, including those that should have gone and did not. */
static void count_left(const struct checkpoints_folder *folder, size_t *count, uint64_t *bytes)
{
	for (size_t i = 0; i < folder->plan.count; i++) {
		const struct neap_retention_entry *entry = &folder->plan.entries[i];

		if ((entry->facts & NEAP_CHECKPOINT_UNFINISHED) || entry->done == NEAP_RETENTION_MOVED ||
		    entry->done == NEAP_RETENTION_GONE)
			continue;
		*count += 1;
		*bytes += entry->bytes;
	}
}

void checkpoints_print_summary(const struct checkpoints_folder *folders, size_t count)
{
	size_t left = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		count_left(&folders[i], &left, &bytes);
	printf("Checkpoint Summary: %zu file%s, %.1f MB total\n", left, plural(left),
	       (double)bytes / (double)NEAP_MIB);
}

/* JSON: jansson's constructors return NULL if memory runs out, and its setters then fail; one flag remembers that. */

static json_t *reasons_json(uint32_t reasons)
{
	static const struct {
		uint32_t reason;
		const char *name;
	} table[] = {{NEAP_KEEP_PINNED, "pinned"},
		     {NEAP_KEEP_RESUME, "resume"},
		     {NEAP_KEEP_NEWEST, "newest"},
		     {NEAP_KEEP_BEST, "best"},
		     {NEAP_KEEP_LAST, "last"},
		     {NEAP_KEEP_EVERY, "every"},
		     {NEAP_KEEP_YOUNG, "young"},
		     {NEAP_KEEP_NAMED, "named"},
		     {NEAP_KEEP_OPEN, "open"},
		     {NEAP_KEEP_UNREADABLE, "unreadable"},
		     {NEAP_KEEP_ELSEWHERE, "elsewhere"},
		     {NEAP_KEEP_UNNUMBERED, "unnumbered"},
		     {NEAP_KEEP_HALF, "half"},
		     {NEAP_KEEP_RECORDED, "recorded"},
		     {NEAP_DROP_OLD, "old"},
		     {NEAP_DROP_SIZE, "size"},
		     {NEAP_DROP_REST, "rest"},
		     {NEAP_DROP_UNFINISHED, "unfinished"},
		     {NEAP_DROP_TORN, "torn"},
		     {NEAP_DROP_COUNT, "count"}};
	json_t *array = json_array();

	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (reasons & table[i].reason)
			neap_json_add(array, json_string(table[i].name));
	return array;
}

/* The names of all its files and folders. */
static json_t *parts_json(const struct neap_retention_entry *entry)
{
	json_t *array = json_array();

	for (size_t i = 0; i < entry->part_count; i++)
		neap_json_add(array, neap_json_text(entry->parts[i].name));
	return array;
}

static json_t *entry_json(const struct neap_retention_plan *plan, const struct neap_retention_options *rules,
			  size_t index)
{
	static const char *const done[] = {NULL, "moved", "gone", "changed", "failed"};
	const struct neap_retention_entry *entry = &plan->entries[index];
	char reason[256];

	return JSON(TEXT("name", entry->name), NUMBER("bytes", entry->bytes),
		    NUMBER("freed_bytes", entry->freed_bytes), NUMBER("modified_ns", entry->modified_ns),
		    BOOL("folder", entry->facts & NEAP_CHECKPOINT_FOLDER), VALUE("parts", parts_json(entry)),
		    GIVEN("torn", entry->torn), KNOWN("step", entry->step),
		    BOOL("measured", entry->facts & NEAP_CHECKPOINT_MEASURED), KNOWN("metric", entry->metric),
		    TEXT("verdict", entry->drop ? "delete" : "keep"), VALUE("reasons", reasons_json(entry->reasons)),
		    TEXT("reason", neap_retention_reason_text(plan, rules, index, reason, sizeof reason)),
		    GIVEN("done", done[entry->done]), ONLY(entry->cause, TEXT("error", strerror(entry->cause))));
}

static json_t *plan_json(const struct neap_retention_plan *plan, const struct neap_retention_options *rules)
{
	static const char *const modes[] = {NULL, "min", "max"};
	json_t *entries = json_array();

	for (size_t i = 0; i < plan->count; i++)
		neap_json_add(entries, entry_json(plan, rules, i));
	return JSON(GIVEN("metric", plan->metric), GIVEN("mode", modes[plan->mode]), GIVEN("source", plan->source),
		    BOOL("metric_inferred", plan->metric_inferred), BOOL("mode_inferred", plan->mode_inferred),
		    BOOL("newest_for_best", plan->newest_for_best), BOOL("order_disagrees", plan->order_disagrees),
		    NUMBER("keep_count", plan->keep_count), NUMBER("keep_bytes", plan->keep_bytes),
		    NUMBER("delete_count", plan->drop_count), NUMBER("delete_bytes", plan->drop_bytes),
		    NUMBER("freed_bytes", plan->freed_bytes), NUMBER("over_bytes", plan->over_bytes),
		    NUMBER("over_count", plan->over_count), NUMBER("links", plan->link_count),
		    NUMBER("trash_count", plan->trash_count), NUMBER("trash_bytes", plan->trash_bytes),
		    VALUE("checkpoints", entries));
}

static json_t *result_json(const struct neap_retention_result *result)
{
	return JSON(NUMBER("moved_count", result->moved_count), NUMBER("moved_bytes", result->moved_bytes),
		    NUMBER("failed_count", result->failed_count), NUMBER("changed_count", result->changed_count),
		    NUMBER("deleted_count", result->deleted_count), NUMBER("deleted_bytes", result->deleted_bytes),
		    NUMBER("restored_count", result->restored_count), GIVEN("trash_until_s", result->trash_until_s));
}

int checkpoints_print_json(const struct checkpoints_folder *folders, size_t count,
			   const struct neap_retention_options *rules, bool dry_run)
{
	json_t *list = json_array();
	size_t left = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		neap_json_add(list, JSON(TEXT("folder", folders[i].name),
					 VALUE("plan",
					       folders[i].planned ? plan_json(&folders[i].plan, rules) : json_null()),
					 NUMBER("below_folders", folders[i].below_folders),
					 NUMBER("below_checkpoints", folders[i].below_checkpoints),
					 VALUE("result", result_json(&folders[i].result))));
		count_left(&folders[i], &left, &bytes);
	}
	json_t *root = JSON(INTEGER("schema", SCHEMA), BOOL("dry_run", dry_run), VALUE("folders", list),
			    VALUE("summary", JSON(NUMBER("count", left), NUMBER("bytes", bytes))));
	return json_print("checkpoints", root, JSON_INDENT(2));
}
