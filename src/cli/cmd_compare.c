/* cli/cmd_compare.c: `neap compare`: shows what changed between two traces, such as before and after an
 * optimisation. */
#include "cli/command.h"
#include "cli/print.h"
#include "cli/run_folder.h"
#include "report/compared.h"
#include "report/page_file.h"

#include <string.h>

static int run(const struct neap_arguments *arguments);

const struct neap_command neap_command_compare = {
	.name = "compare",
	.usage = "A B [--json] [--html OUT]",
	.summary = "what changed between two traces, such as before and after an optimisation",
	.details = neap_help_compare,
	.options =
		(const struct neap_option[]){
			{"json", NULL, "every figure, as JSON"},
			{"html", "OUT", "both side by side on a page for a browser as well; - for standard output"},
			{NULL, NULL, NULL},
		},
	.operands_min = 2,
	.operands_max = 2,
	.run = run,
};

static int print_people(const struct neap_compared *compared)
{
	struct neap_buffer out = {0};
	struct neap_error err;
	int code = NEAP_EXIT_OK;

	neap_report_compared(&out, compared);
	if (neap_buffer_status(&out, &err) != NEAP_OK)
		code = neap_complain("compare", &err);
	else
		print_safe_lines(stdout, neap_buffer_string(&out));
	neap_buffer_fini(&out);
	return code;
}

static enum neap_status load(const struct neap_arguments *arguments, size_t operand, char path[NEAP_RUN_FOLDER_PATH],
			     struct neap_compared_side *side, struct neap_error *err)
{
	enum neap_status status = run_folder_trace("compare", neap_operand(arguments, operand), path, err);
	if (!status)
		status = neap_compared_load(path, side, err);
	if (!status)
		side->trace->origin = neap_run_folder_origin(path);
	return status;
}

static enum neap_status write_page(const char *html, const struct neap_compared *compared, struct neap_error *err)
{
	struct neap_buffer page = {0};
	struct neap_page_file file = {0};

	enum neap_status status = neap_compared_page(&page, compared, err);
	if (!status)
		status = neap_page_file_begin(
			&file, html, (const char *[]){compared->before.path, compared->after.path, NULL}, err);
	if (!status)
		status = neap_fd_write(file.fd, page.data, page.length, err);
	if (!status)
		status = neap_page_file_commit(&file, err);
	neap_page_file_abort(&file);
	neap_buffer_fini(&page);
	return status;
}

static int print(const struct neap_arguments *arguments, const struct neap_compared *compared)
{
	const char *html = neap_argument(arguments, "html");
	bool json = neap_argument(arguments, "json") != NULL, piped = html && !strcmp(html, "-");
	struct neap_error err = {0};

	if (html && write_page(html, compared, &err) != NEAP_OK)
		return neap_complain("compare", &err);
	if (piped)
		return NEAP_EXIT_OK;
	int code =
		json ? json_print("compare", neap_compared_json(compared), JSON_INDENT(2)) : print_people(compared);
	if (html && !json && !code)
		printf("\nPage: %s\n", NEAP_PRINTABLE(html));
	return code;
}

static int run(const struct neap_arguments *arguments)
{
	struct neap_compared compared = {0};
	char before[NEAP_RUN_FOLDER_PATH], after[NEAP_RUN_FOLDER_PATH];
	struct neap_error err = {0};
	int code;

	const char *html = neap_argument(arguments, "html");

	if (html && !strcmp(html, "-") && neap_argument(arguments, "json"))
		return neap_misuse(arguments, "--html - and --json would both go to standard output");
	enum neap_status status = load(arguments, 0, before, &compared.before, &err);
	if (!status)
		status = load(arguments, 1, after, &compared.after, &err);
	if (!status)
		status = neap_compared_find(&compared, &err);
	if (status)
		code = neap_complain("compare", &err);
	else
		code = print(arguments, &compared);
	neap_compared_fini(&compared);
	return code;
}
