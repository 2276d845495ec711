#include "cli/record_args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/otlp_post.h"

namespace meshwright::cli {

void AddRecords(CLI::App& app, RecordsArgs& args) {
  CLI::App* records = app.add_subcommand(
      "records",
      "Write the steps of a job for TensorBoard, pandas, a spreadsheet or OpenTelemetry");
  records->add_option("id", args.id, "Job id")->required()->check(CLI::PositiveNumber);
  records
      ->add_option(
          "--to", args.to,
          "Folder; the job's records go to FOLDER/NAME-ID, in the place of older ones. With "
          "--format otlp also http://HOST:PORT of a collector, to which they are sent")
      ->required();
  records
      ->add_option("--format", args.formats,
                   "tensorboard: an event file; jsonl: metrics.jsonl; csv: metrics.csv; otlp: "
                   "traces.jsonl for OpenTelemetry; several by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"tensorboard", "jsonl", "csv", "otlp"}))
      ->capture_default_str();
  records->add_flag("-f,--follow", args.follow, "Stay and write on until the job ends");
  records->add_option("--timeout-s", args.timeout_s, "With --follow; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
}

std::string CheckRecords(const RecordsArgs& args) {
  if (!IsUrl(args.to)) return "";
  if (args.formats != std::vector<std::string>{"otlp"}) {
    return fmt::format(
        "--to {} is a collector of OpenTelemetry, which takes --format otlp alone; "
        "files go to a folder",
        args.to);
  }
  const auto endpoint = ParseOtlpEndpoint(args.to);
  return endpoint.has_value() ? "" : endpoint.error().message();
}

void AddCompare(CLI::App& app, CompareArgs& args) {
  CLI::App* compare = app.add_subcommand(
      "compare", "Runs side by side: losses at equal steps and tokens, speed, changed keys");
  compare
      ->add_option(
          "runs", args.runs,
          "Job ids; or a metrics.jsonl or metrics.csv, or a folder with one, of any cluster")
      ->required()
      ->expected(2, 8);
  compare->add_option("--svg", args.svg, "File for a picture of the losses");
}

}  // namespace meshwright::cli
