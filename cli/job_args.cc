#include "cli/job_args.h"

#include "base/text.h"
#include "client/embedding.h"
#include "data/describe.h"
#include "generation/beam_search.h"
#include "ir/queue_spec.h"

namespace meshwright::cli {

void AddOverrides(CLI::App* command, std::vector<std::string>& overrides) {
  command->add_option("--set", overrides, "section.key=value in TOML syntax; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddDecisions(CLI::App& command, std::string& file) {
  command.add_option("--plan", file, "Take the decisions that `plan --save` wrote to this file");
}

void AddRoots(CLI::App& command, const char* option, std::vector<std::string>& roots,
              const char* meaning) {
  command.add_option(option, roots, meaning)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void AddDataRoots(CLI::App& command, std::vector<std::string>& roots, const char* meaning) {
  AddRoots(command, "--data-root", roots, meaning);
}

namespace {

// Far from where a deadline in nanoseconds overflows.
const CLI::Range kTimeoutSeconds(int64_t{0}, int64_t{1'000'000'000});
const CLI::Range kJobId(int64_t{1}, INT64_MAX);
const CLI::Validator kAskedJob(
    [](const std::string& text) -> std::string {
      if (ParseInt(text).value_or(0) > 0) return "";
      return "'" + text +
             "' is no job's id: predict asks the model of a job; that of a folder is asked by "
             "generate, chat, evaluate and embed";
    },
    "ID");
const CLI::Range kStep(int64_t{0}, INT64_MAX);

void AddCheckpoint(CLI::App& app, CheckpointArgs& args) {
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "List, check, compare and export checkpoints");
  checkpoint->require_subcommand(1);
  checkpoint->fallthrough();
  constexpr char kPlace[] = "Folder of checkpoints, one of them, or the id of a job";
  const auto add = [&](const char* name, CheckpointAction action, const char* meaning) {
    CLI::App* command = checkpoint->add_subcommand(name, meaning);
    command->fallthrough();
    command->add_option("place", args.place, kPlace)->required();
    command->callback([&args, action] { args.action = action; });
    return command;
  };
  const auto add_step = [&](CLI::App* command) {
    command->add_option("--step", args.step, "Of a folder: which one, not the newest")
        ->check(kStep);
    return command;
  };
  add("ls", CheckpointAction::kList, "What there is in a folder");
  add_step(add("inspect", CheckpointAction::kInspect, "The tensors of a checkpoint"));
  add_step(add("verify", CheckpointAction::kVerify, "Read everything and compare the digests"));
  CLI::App* diff =
      add_step(add("diff", CheckpointAction::kDiff, "What differs from another checkpoint"));
  diff->add_option("other", args.other, kPlace)->required();
  CLI::App* to_file =
      add_step(add("export", CheckpointAction::kExport,
                   "Write the weights as one safetensors file, or a folder for transformers"));
  to_file
      ->add_option("file", args.other,
                   "model.safetensors, or the name of a folder: with config.json and tokenizer, as "
                   "from_pretrained takes it")
      ->required();
  to_file
      ->add_option("--max-file-mib", args.most_file_mib,
                   "Of a folder: above it weights are several files")
      ->check(CLI::Range(1, 1 << 20));
  to_file->add_flag("--averages", args.averages,
                    "Means of weights instead, where the job kept them (training.ema_decay)");
  to_file->add_option("--dtype", args.dtype, "Of its weights; default: as they are")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16", "float16"}));
  CLI::App* remove = add("rm", CheckpointAction::kRemove, "Remove one");
  remove->add_option("--step", args.step, "Which")->required()->check(kStep);
}

void AddSubmit(CLI::App& app, SubmitArgs& args) {
  CLI::App* submit = app.add_subcommand("submit", "Submit a job and follow it to its end");
  CLI::Option* job = submit->add_option("job", args.file, "Job file (TOML)");
  CLI::Option* resume =
      submit->add_option("--resume", args.resume, "Go on from the newest checkpoint of this job")
          ->check(kJobId);
  submit
      ->add_option("--from", args.from,
                   "Go on from a checkpoint in this folder, which a checkpoint root holds")
      ->excludes(resume);
  submit->add_option("--step", args.step, "The checkpoint of this step, not the newest")
      ->check(kStep);
  submit
      ->add_option("--exclude", args.exclude,
                   "Tensors that start anew, by a pattern such as 'opt.*'; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  const auto add_key = [submit, &args](const char* option, const char* key, const char* meaning,
                                       int64_t least, int64_t most) {
    submit
        ->add_option_function<int64_t>(
            option, [&args, key](int64_t value) { args.keys[key] = value; }, meaning)
        ->check(CLI::Range(least, most));
  };
  add_key("--priority", "job.priority", "Jobs of a higher one go first; default: 0, or the file's",
          -ir::kMaxPriority, ir::kMaxPriority);
  add_key("--max-queue-wait-s", "job.max_queue_wait_seconds",
          "The job ends when it has waited so long for its first devices; 0: no limit", 0,
          1'000'000'000);
  submit->final_callback([job, &args] {
    for (const auto& [key, value] : args.keys) {
      args.overrides.push_back(key + "=" + std::to_string(value));
    }
    if (job->count() == 0 && args.resume == 0 && args.from.empty()) {
      throw CLI::RequiredError("job");
    }
  });
  AddOverrides(submit, args.overrides);
  AddDecisions(*submit, args.decisions);
  CLI::Option* no_wait = submit->add_flag("--no-wait", args.no_wait, "Print the id and return");
  AddDataRoots(
      *submit, args.data_roots,
      "Where this machine has the folder that workers know as NAME: NAME=PATH; repeatable");
  submit->add_flag("--upload", args.upload,
                   "Send all files to the controller, also those that workers can read in place");
  submit->add_flag("-q,--quiet", args.quiet, "No step lines");
  submit->add_option("--record", args.record, "Write every step as a JSON line to this file")
      ->excludes(no_wait);
  submit
      ->add_option("--timeout-s", args.timeout_s,
                   "Stop following after this long; the job goes on; 0: no limit")
      ->check(kTimeoutSeconds);
}

std::vector<std::string> PredictFormats() {
  std::vector<std::string> names = data::FormatNames();
  names.insert(names.end(), {"text", "jsonl"});
  return names;
}

void AddPredict(CLI::App& app, PredictArgs& args) {
  CLI::App* predict =
      app.add_subcommand("predict", "What the model of a job says to a text, and what comes next");
  predict->add_option("id", args.id, "Job id; it runs, or has left weights")
      ->required()
      ->check(kAskedJob);
  CLI::Option* text =
      predict->add_option("text", args.text, "Text, read by the tokenizer of the job's data");
  predict->add_option("--tokens", args.tokens, "Instead of text: 12,7,300")->excludes(text);
  predict
      ->add_option("--data", args.data,
                   "Instead of text: every row of these files, as a job would read them; "
                   "NAME=a.npy names the input; of .jsonl the \"text\" of each line; repeatable")
      ->allow_extra_args(false)
      ->excludes(text);
  predict->add_option("--format", args.format, "Of --data; default: by name, or as the job's")
      ->check(CLI::IsMember(PredictFormats()));
  predict->add_option("--out", args.out, "With --data: what comes out, .jsonl or .npy");
  predict->add_option("--top", args.top, "So many of the likeliest next tokens, or classes")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  predict->add_option("--timeout-s", args.timeout_s, "Patience: the model may wait for devices")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}))
      ->capture_default_str();
}

// What `generate` and `chat` have in common: a model, and how its tokens are drawn.
void AddWriting(CLI::App* generate, GenerateArgs& args) {
  generate->add_option("--max-new-tokens", args.max_new_tokens, "Default: the model's own, or 128")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}));
  CLI::Option* greedy =
      generate->add_flag("--greedy", args.greedy, "Always the likeliest token; draw none");
  generate->add_option("--temperature", args.temperature, "Draw tokens; 0: as --greedy")
      ->excludes(greedy);
  generate->add_option("--top-k", args.top_k, "Draw one of the likeliest; 0: of all")
      ->excludes(greedy);
  generate->add_option("--top-p", args.top_p, "Draw one of the likeliest with this probability")
      ->excludes(greedy);
  generate
      ->add_option("--min-p", args.min_p, "Draw one with this share of the likeliest's probability")
      ->excludes(greedy);
  generate->add_option("--repetition-penalty", args.repetition_penalty, "1: none");
  generate->add_option("--min-new-tokens", args.min_new_tokens, "A text does not end before")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  generate
      ->add_option("--no-repeat-ngram-size", args.no_repeat_ngram_size,
                   "So many tokens in a row are in a text once, the prompt included; 0: no rule")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  generate->add_option("--seed", args.seed, "Of the draws; the same seed draws the same text")
      ->excludes(greedy);
  generate->add_flag("--ignore-eos", args.ignore_stops, "Go on behind the model's end of a text");
  generate
      ->add_option("--dtype", args.dtype, "Of a folder's model; bfloat16: half the bytes to read")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}))
      ->capture_default_str();
  AddOverrides(generate, args.overrides);
  generate->add_option("--timeout-s", args.timeout_s, "Patience: the model may wait for devices")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}))
      ->capture_default_str();
}

constexpr char kModel[] = "A Hugging Face folder with its tokenizer, or the id of a job";

void AddGenerate(CLI::App& app, GenerateArgs& args) {
  CLI::App* generate = app.add_subcommand("generate", "Text by a model, behind a prompt");
  generate->add_option("model", args.model, kModel)->required();
  generate->add_option("prompt", args.prompt, "Text to go on from")->required();
  AddWriting(generate, args);
  CLI::Option* beams = generate->add_option("--num-beams", args.num_beams,
                                            "Search for the likeliest text with so many");
  beams->check(CLI::Range(int64_t{1}, generation::kMostBeams));
  for (const char* draws : {"--temperature", "--top-k", "--top-p", "--min-p", "--seed"}) {
    beams->excludes(generate->get_option(draws));
  }
  generate->add_option(
      "--length-penalty", args.length_penalty,
      "Of beams: scores are divided by length^this; default: the model's own, or 1");
  generate
      ->add_option("--early-stopping", args.early_stopping,
                   "Of beams: true ends with as many texts as beams, never when none can be better")
      ->check(CLI::IsMember({"true", "false", "never"}));
  generate->add_flag("--echo", args.echo, "Print the prompt, too");
}

void AddChat(CLI::App& app, ChatArgs& args) {
  CLI::App* chat = app.add_subcommand("chat", "A conversation with a model, line by line");
  chat->add_option("model", args.generate.model, kModel)->required();
  AddWriting(chat, args.generate);
  chat->add_option("--system", args.system, "What the system says before the conversation");
  chat->add_option("--context", args.context, "Tokens of a conversation; the model may have fewer")
      ->check(CLI::Range(int64_t{16}, int64_t{10'000'000}))
      ->capture_default_str();
  chat->add_option("--chat-template", args.chat_template,
                   "A template's file, or a folder with one; default: the model's own");
  chat->add_option("--variables", args.variables,
                   "What the template asks for besides, as JSON: {\"enable_thinking\": false}");
}

void AddEmbed(CLI::App& app, EmbedArgs& args) {
  CLI::App* embed = app.add_subcommand(
      "embed", "Texts as vectors, by a model whose tokens see the whole text, as BERT's do");
  embed->add_option("model", args.model, kModel)->required();
  CLI::Option* texts = embed->add_option("texts", args.texts, "Each becomes a vector");
  embed
      ->add_option("--file", args.file,
                   "Instead of texts: a text in each line; of .jsonl the \"text\" of each object")
      ->excludes(texts);
  embed->add_option(
      "-o,--out", args.out,
      "Where vectors go: .npy, an array of NumPy, or .jsonl; without: lines of JSON on stdout");
  embed
      ->add_option("--pooling", args.pooling,
                   "How states of tokens become a vector; default: as the folder says, or mean")
      ->check(CLI::IsMember(client::PoolingNames()));
  CLI::Option* const unit = embed->add_flag_callback(
      "--normalize", [&args] { args.normalised = true; },
      "Vectors of length 1; default: as the folder says, or not");
  embed
      ->add_flag_callback(
          "--no-normalize", [&args] { args.normalised = false; }, "Of the length that they have")
      ->excludes(unit);
  embed->add_option("--rows", args.rows, "That the model sees at once; several texts share a row")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  embed
      ->add_option("--max-tokens", args.tokens,
                   "Of a text; the rest is left out. Default: as the folder says, or all that the "
                   "model has positions for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  embed->add_option("--dtype", args.dtype, "Of a folder's model")
      ->check(CLI::IsMember({"float32", "float64"}))
      ->capture_default_str();
  AddOverrides(embed, args.overrides);
  embed->add_option("--timeout-s", args.timeout_s, "Patience: the model may wait for devices")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}))
      ->capture_default_str();
}

void AddScoring(CLI::App& evaluate, EvalArgs& args) {
  evaluate.add_option("--data", args.data,
                      "Text, or JSON lines: rows with \"choices\" are questions, others documents; "
                      "without: the job's own validation data");
  evaluate
      .add_option("--format", args.format, "Default: jsonl of a file that is called so, else text")
      ->check(CLI::IsMember({"text", "jsonl"}));
  evaluate.add_option("--loss-on", args.loss_on, "Which tokens of documents count")
      ->check(CLI::IsMember({"all", "answers"}))
      ->capture_default_str();
  evaluate.add_option("--delimiter", args.delimiter, "Between a prompt and a choice")
      ->capture_default_str();
  evaluate.add_option("--samples", args.samples,
                      "File for what was said of each row, as JSON lines");
  evaluate.add_option("--batch", args.batch, "Rows that the model sees at once")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  evaluate.add_option("--context", args.context, "Tokens of a row; the model may have fewer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  evaluate.add_option("--limit", args.limit, "Documents or questions at most; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  evaluate.add_option("--dtype", args.dtype, "Of a folder's model")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16"}))
      ->capture_default_str();
  AddOverrides(&evaluate, args.overrides);
}

void AddEvaluate(CLI::App& app, EvaluateArgs& args) {
  CLI::App* evaluate = app.add_subcommand(
      "evaluate",
      "How good a model is: on --data its perplexity and accuracy, or the choices that it takes; "
      "without, a job's loss on its validation data");
  evaluate->alias("eval");
  evaluate->add_option("model", args.eval.model, kModel)->required();
  AddScoring(*evaluate, args.eval);
  evaluate
      ->add_option("--batches", args.batches,
                   "Of validation data at most; 0: as many as the job's validations had")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
      ->excludes("--data");
  evaluate
      ->add_option("--timeout-s", args.timeout_s,
                   "Patience; default: 3600, with --data 600. An evaluation without --data goes on")
      ->check(CLI::Range(int64_t{1}, int64_t{86'400}));
}

}  // namespace

namespace {

void AddSteps(CLI::App& command, JobArgs& job, std::string& steps) {
  command.add_option("id", job.id, "Job id")->required()->check(kJobId);
  command.add_option("--steps", steps,
                     "A..B: steps of the job, from 1; those that are still to come are recorded. "
                     "Without: those that were recorded last");
  command.add_option("--timeout-s", job.timeout_s, "For steps to come; 0: no limit")
      ->check(kTimeoutSeconds);
}

void AddTimeline(CLI::App& app, TimelineArgs& args) {
  CLI::App* timeline =
      app.add_subcommand("timeline", "What every device did in steps of a job, kernel by kernel");
  AddSteps(*timeline, args, args.steps);
  timeline
      ->add_option("-o,--out", args.out,
                   "table: the longest by name; json: all of them; else a file for a Chrome trace, "
                   "which Perfetto opens beside that of `plan --trace`")
      ->capture_default_str();
}

void AddWhy(CLI::App& app, WhyArgs& args) {
  CLI::App* why = app.add_subcommand(
      "why", "Where the time of a job's steps goes against its plan, and what to try");
  AddSteps(*why, args, args.steps);
}

void AddDescribe(CLI::App& app, DescribeArgs& args) {
  CLI::App* describe = app.add_subcommand(
      "describe",
      "All that there is to know of a job, on one screen: state, progress, layout, "
      "devices, configuration, checkpoints, last events");
  describe->add_option("id", args.id, "Job id")->required()->check(kJobId);
  describe->add_option("--events", args.events, "So many of the last events")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}))
      ->capture_default_str();
}

}  // namespace

void AddJobs(CLI::App& app, const JobCommands& commands) {
  AddSubmit(app, commands.submit);
  AddPredict(app, commands.predict);
  AddGenerate(app, commands.generate);
  AddChat(app, commands.chat);
  AddEmbed(app, commands.embed);
  AddEvaluate(app, commands.evaluate);
  AddCheckpoint(app, commands.checkpoint);

  app.add_subcommand("jobs", "List jobs")
      ->add_flag("--all", commands.jobs.all,
                 "Also the ended sessions of generate, predict, chat, embed and evaluate");
  CLI::App* cancel = app.add_subcommand("cancel", "Cancel a job");
  cancel->add_option("id", commands.cancel.id, "Job id")->required()->check(kJobId);
  CLI::App* pause = app.add_subcommand(
      "pause", "Save a job that trains and free its devices until it is resumed");
  pause->add_option("id", commands.pause.id, "Job id")->required()->check(kJobId);
  pause->add_flag("--no-wait", commands.pause.no_wait, "Do not stay until it is paused");
  pause->add_option("--timeout-s", commands.pause.timeout_s, "To wait; 0: no limit")
      ->check(kTimeoutSeconds);
  CLI::App* resume = app.add_subcommand("resume", "Put a paused job back into the queue");
  resume->add_option("id", commands.resume.id, "Job id")->required()->check(kJobId);
  CLI::App* wait = app.add_subcommand("wait", "Wait for the end of a job");
  wait->add_option("id", commands.wait.id, "Job id")->required()->check(kJobId);
  wait->add_option("--timeout-s", commands.wait.timeout_s, "0: no limit")->check(kTimeoutSeconds);
  AddTimeline(app, commands.timeline);
  AddWhy(app, commands.why);
  AddDescribe(app, commands.describe);
}

}  // namespace meshwright::cli
