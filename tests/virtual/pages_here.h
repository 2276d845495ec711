// A session of programs, in this process: params are those of a file, pages stay.
//
// Thread rule: one thread. Ownership: the file outlives the session.
#pragma once

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "client/session.h"
#include "formats/safetensors.h"
#include "ir/builder.h"
#include "ir/job.h"
#include "ops/kernel.h"

namespace meshwright::testing {

class PagesHere final : public client::Session {
 public:
  PagesHere(const ir::JobRequest& job, const formats::SafetensorsFile& weights)
      : weights_(weights) {
    for (const ir::JobProgram& program : job.programs) {
      ir::Builder builder(program.graph);
      for (const NodeId id : program.graph.NodesOf(ir::Op::kPagedAttention)) {
        const ir::Node& node = program.graph.node(id);
        builder.SetOutput(program.graph.producer(node.inputs[3]).attrs.Str("name"),
                          node.outputs[2]);
      }
      auto graph = builder.Finish();
      MW_CHECK(graph.has_value()) << graph.error();
      graphs_[program.name] = *std::move(graph);
    }
  }

  Result<client::Answer> Run(const std::string& program, const client::Feeds& feeds,
                             client::CallOptions options) override {
    const ir::Graph& graph = graphs_.at(program);
    Brought brought(feeds);
    ops::RunContext context;
    context.feed = &brought;
    const auto bind = [&](const ir::Node& node) -> Result<ops::HostTensor> {
      const ir::TensorType& type = graph.type(node.outputs[0]);
      const auto kept = kept_.find(node.attrs.Str("name"));
      if (kept != kept_.end()) return kept->second;
      ops::HostTensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
      if (node.attrs.Int("kept") != 0) return tensor;
      MW_ASSIGN_OR_RETURN(tensor.data, formats::ReadLogicalTile(weights_, node, type, {}));
      return tensor;
    };
    MW_ASSIGN_OR_RETURN(auto results, ops::Evaluate(ops::Backend::kCpu, graph, bind, context));
    client::Answer answer;
    client::Tensor& first = answer.tensors[graph.outputs[0].name];
    first = {results[0].type, std::move(results[0].data)};
    if (options.fetch == client::Fetch::kLargest) first = LargestOf(first);
    for (size_t i = 1; i < graph.outputs.size(); ++i) {
      kept_[graph.outputs[i].name] = std::move(results[i]);
    }
    return answer;
  }

  int64_t job_id() const override { return 1; }
  std::map<std::string, std::map<std::string, ir::TensorType>> programs() const override {
    return {};
  }
  std::future<Result<client::Answer>> Call(const std::string&, const client::Feeds&,
                                           client::CallOptions) override {
    return {};
  }
  Result<std::map<std::string, client::Tensor>> ReadState(
      const std::vector<std::string>&) override {
    return std::map<std::string, client::Tensor>();
  }
  Status WriteState(const std::map<std::string, client::Tensor>&) override { return OkStatus(); }
  Result<client::ActorRef> Spawn(const std::string&, const std::string&,
                                 const std::string&) override {
    return client::ActorRef();
  }
  std::future<Result<std::string>> Ask(const client::ActorRef&, std::string, int64_t) override {
    return {};
  }
  std::future<Status> Tell(const client::ActorRef&, std::string, int64_t) override { return {}; }
  std::future<Result<client::ActorNews>> Watch(const client::ActorRef&) override { return {}; }
  Status Stop(const client::ActorRef&) override { return OkStatus(); }
  Status Close(client::CloseOptions) override { return OkStatus(); }

 private:
  class Brought final : public ops::FeedSource {
   public:
    explicit Brought(const client::Feeds& feeds) : feeds_(feeds) {}
    // Each call is a step of its own, the first one.
    Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) override {
      const std::span<const std::byte> data = feeds_.at(source).data;
      const size_t begin = data.size() == row.size() ? 0 : static_cast<size_t>(sample) * row.size();
      MW_CHECK(begin + row.size() <= data.size()) << source << " has " << data.size() << " bytes";
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(begin), row.size(), row.begin());
      return OkStatus();
    }

   private:
    const client::Feeds& feeds_;
  };

  // logits: [1, rows, vocabulary].
  static client::Tensor LargestOf(const client::Tensor& logits) {
    std::vector<int32_t> places;
    for (int64_t row = 0; row < logits.type.dims[1]; ++row) {
      const std::vector<double> reals = logits.RealsOfRow(0, row);
      const auto largest = std::max_element(reals.begin(), reals.end());
      places.push_back(static_cast<int32_t>(largest - reals.begin()));
    }
    return client::Tensor::Of<int32_t>({1, logits.type.dims[1]}, places);
  }

  const formats::SafetensorsFile& weights_;
  std::map<std::string, ir::Graph> graphs_;
  std::map<std::string, ops::HostTensor> kept_;
};

}  // namespace meshwright::testing
