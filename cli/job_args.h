// The options of commands about jobs, and those that several commands have.
//
// Thread rule: main thread. What is filled in outlives the parser.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/args.h"

namespace meshwright::cli {

void AddOverrides(CLI::App* command, std::vector<std::string>& overrides);
void AddDecisions(CLI::App& command, std::string& file);
void AddRoots(CLI::App& command, const char* option, std::vector<std::string>& roots,
              const char* meaning);
void AddDataRoots(CLI::App& command, std::vector<std::string>& roots, const char* meaning);

struct JobCommands {
  SubmitArgs& submit;
  PredictArgs& predict;
  GenerateArgs& generate;
  ChatArgs& chat;
  EmbedArgs& embed;
  EvaluateArgs& evaluate;
  CheckpointArgs& checkpoint;
  CancelArgs& cancel;
  PauseArgs& pause;
  ResumeArgs& resume;
  WaitArgs& wait;
  TimelineArgs& timeline;
  WhyArgs& why;
  DescribeArgs& describe;
  JobsArgs& jobs;
};
// submit, predict, generate, chat, embed, evaluate, checkpoint, jobs, cancel, pause, resume, wait,
// timeline, why, describe.
void AddJobs(CLI::App& app, const JobCommands& commands);

}  // namespace meshwright::cli
