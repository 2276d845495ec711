// How workers get the files of a job: in place where all of them have a data root that holds the
// file, else from the controller, to which it is uploaded.
//
//   MW_ASSIGN_OR_RETURN(ir::DataStream digits, data::DescribeFiles(
//       {.stream = "digits", .format = "npy", .paths = {"image=x.npy", "label=y.npy"}}));
//   MW_ASSIGN_OR_RETURN(client::SentData data, client::SendData(*client, {digits}));
//   builder.Data(data.spec);
//
// A root is known by its name. Where it is on this machine: as the options say, else as the workers
// say, if all of them say the same. Thread rule: one thread. See docs/data.md.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/data_spec.h"

namespace meshwright::client {

struct SendOptions {
  std::vector<ir::DataRoot> roots = {};  // where this machine has them
  bool upload = false;                   // all files, also those that could be read in place
};

struct SentData {
  ir::DataSpec spec;
  std::vector<std::string> notes;  // what was uploaded and which root is missing, for people
};

// Streams of data::DescribeFiles, made ready for a job.
// Errors: those of Workers and UploadFile; kNotFound: a file is gone.
Result<SentData> SendData(Client& client, std::vector<ir::DataStream> streams,
                          const SendOptions& options = {});

struct SentFile {
  ir::FileRef file;
  std::vector<std::string> notes;
};

// A single file: weights to start from.
Result<SentFile> SendFile(Client& client, const std::string& path, const SendOptions& options = {});

// The root below which all workers see the file, and the path below it; else what is missing.
struct RootChoice {
  std::string root;  // empty: none
  std::string path;
  std::string missing;  // "worker-1 has no data root '/data'", for people
};
RootChoice ChooseRoot(const std::vector<WorkerInfo>& workers,
                      const std::vector<ir::DataRoot>& known, const std::string& path);

}  // namespace meshwright::client
