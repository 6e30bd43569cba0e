/* cli/checkpoints_report.c: see the header. */
#include "cli/checkpoints_report.h"

#include "base/clock.h"
#include "base/units.h"
#include "cli/json_print.h"
#include "cli/print.h"
#include "report/cells.h"

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

/* By which metric the best were chosen, and why. */
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
	char size[NEAP_UNITS_ROOM];
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

/* What belongs to it, a line each; of a hundred shards a few. */
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

/* The last line of a dry run: when how much becomes free. Nothing does while it is in the trash. */
static void print_would(const struct neap_retention_plan *plan, const struct neap_retention_options *rules)
{
	char size[NEAP_UNITS_ROOM], freed[NEAP_UNITS_ROOM], left[NEAP_UNITS_ROOM], until[32];
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
	char size[NEAP_UNITS_ROOM], reason[256], until[32];
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

/* As it can be pasted into a shell. */
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
	char size[NEAP_UNITS_ROOM], until[32];
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

/* What stays, and what should have gone and did not. */
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

/* JSON: jansson's constructors give NULL when memory is out, its setters then fail; one flag remembers. */

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
	json_t *object = json_object();
	char reason[256];

	neap_json_set(object, "name", neap_json_text(entry->name));
	neap_json_set(object, "bytes", neap_json_number(entry->bytes));
	neap_json_set(object, "freed_bytes", neap_json_number(entry->freed_bytes));
	neap_json_set(object, "modified_ns", neap_json_number(entry->modified_ns));
	neap_json_set(object, "folder", json_boolean(entry->facts & NEAP_CHECKPOINT_FOLDER));
	neap_json_set(object, "parts", parts_json(entry));
	neap_json_set(object, "torn", entry->torn ? json_string(entry->torn) : json_null());
	neap_json_set(object, "step", entry->step == NEAP_STEP_UNKNOWN ? json_null() : neap_json_number(entry->step));
	neap_json_set(object, "measured", json_boolean(entry->facts & NEAP_CHECKPOINT_MEASURED));
	neap_json_set(object, "metric", isfinite(entry->metric) ? json_real(entry->metric) : json_null());
	neap_json_set(object, "verdict", json_string(entry->drop ? "delete" : "keep"));
	neap_json_set(object, "reasons", reasons_json(entry->reasons));
	neap_json_set(object, "reason",
		      neap_json_text(neap_retention_reason_text(plan, rules, index, reason, sizeof reason)));
	neap_json_set(object, "done", done[entry->done] ? json_string(done[entry->done]) : json_null());
	neap_json_set(object, "error", entry->cause ? neap_json_text(strerror(entry->cause)) : json_null());
	return object;
}

static json_t *plan_json(const struct neap_retention_plan *plan, const struct neap_retention_options *rules)
{
	static const char *const modes[] = {NULL, "min", "max"};
	json_t *object = json_object(), *entries = json_array();

	for (size_t i = 0; i < plan->count; i++)
		neap_json_add(entries, entry_json(plan, rules, i));
	neap_json_set(object, "metric", plan->metric[0] ? neap_json_text(plan->metric) : json_null());
	neap_json_set(object, "mode", modes[plan->mode] ? json_string(modes[plan->mode]) : json_null());
	neap_json_set(object, "source", plan->source[0] ? neap_json_text(plan->source) : json_null());
	neap_json_set(object, "metric_inferred", json_boolean(plan->metric_inferred));
	neap_json_set(object, "mode_inferred", json_boolean(plan->mode_inferred));
	neap_json_set(object, "newest_for_best", json_boolean(plan->newest_for_best));
	neap_json_set(object, "order_disagrees", json_boolean(plan->order_disagrees));
	neap_json_set(object, "keep_count", neap_json_number(plan->keep_count));
	neap_json_set(object, "keep_bytes", neap_json_number(plan->keep_bytes));
	neap_json_set(object, "delete_count", neap_json_number(plan->drop_count));
	neap_json_set(object, "delete_bytes", neap_json_number(plan->drop_bytes));
	neap_json_set(object, "freed_bytes", neap_json_number(plan->freed_bytes));
	neap_json_set(object, "over_bytes", neap_json_number(plan->over_bytes));
	neap_json_set(object, "over_count", neap_json_number(plan->over_count));
	neap_json_set(object, "links", neap_json_number(plan->link_count));
	neap_json_set(object, "trash_count", neap_json_number(plan->trash_count));
	neap_json_set(object, "trash_bytes", neap_json_number(plan->trash_bytes));
	neap_json_set(object, "checkpoints", entries);
	return object;
}

static json_t *result_json(const struct neap_retention_result *result)
{
	json_t *object = json_object();

	neap_json_set(object, "moved_count", neap_json_number(result->moved_count));
	neap_json_set(object, "moved_bytes", neap_json_number(result->moved_bytes));
	neap_json_set(object, "failed_count", neap_json_number(result->failed_count));
	neap_json_set(object, "changed_count", neap_json_number(result->changed_count));
	neap_json_set(object, "deleted_count", neap_json_number(result->deleted_count));
	neap_json_set(object, "deleted_bytes", neap_json_number(result->deleted_bytes));
	neap_json_set(object, "restored_count", neap_json_number(result->restored_count));
	neap_json_set(object, "trash_until_s",
		      result->trash_until_s ? neap_json_number(result->trash_until_s) : json_null());
	return object;
}

int checkpoints_print_json(const struct checkpoints_folder *folders, size_t count,
			   const struct neap_retention_options *rules, bool dry_run)
{
	json_t *root = json_object(), *list = json_array(), *summary = json_object();
	size_t left = 0;
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		json_t *folder = json_object();

		neap_json_set(folder, "folder", neap_json_text(folders[i].name));
		neap_json_set(folder, "plan", folders[i].planned ? plan_json(&folders[i].plan, rules) : json_null());
		neap_json_set(folder, "below_folders", neap_json_number(folders[i].below_folders));
		neap_json_set(folder, "below_checkpoints", neap_json_number(folders[i].below_checkpoints));
		neap_json_set(folder, "result", result_json(&folders[i].result));
		neap_json_add(list, folder);
		count_left(&folders[i], &left, &bytes);
	}
	neap_json_set(summary, "count", neap_json_number(left));
	neap_json_set(summary, "bytes", neap_json_number(bytes));
	neap_json_set(root, "schema", json_integer(SCHEMA));
	neap_json_set(root, "dry_run", json_boolean(dry_run));
	neap_json_set(root, "folders", list);
	neap_json_set(root, "summary", summary);
	return json_print("checkpoints", root, JSON_INDENT(2));
}
