// Texts as vectors: one for each, of what a model makes of its tokens.
//
//   const EmbedRules rules;  // means of states
//   const EmbedShape shape = EmbedShapeFor(texts, rules, {});
//   MW_ASSIGN_OR_RETURN(ir::JobProgram embed, EmbedProgram(shape, model.functions));
//   job.programs = {std::move(embed)};
//   MW_ASSIGN_OR_RETURN(const auto session, client->OpenSession(job));
//   MW_ASSIGN_OR_RETURN(const Embeddings all, EmbedTexts(*session, shape, texts, rules));
//   all.of(3)   // the numbers of texts[3]
//
// A program has one shape and texts have many lengths, so several of them share a row, one behind
// the other. No token sees another text than its own, and positions begin anew in each: a vector is
// that of the text alone but for the order of sums. How states become a vector ("pooling") is no
// part of the program, to which it is a share of each token.
//
//   inputs   tokens, segments, positions i32[b, s]; shares f[b, t, s]: of token s in vector t
//   outputs  "vectors" f[b, t, d]: sums of states by their shares
//
// Thread rule: pure functions, but for EmbedTexts, which asks the session. Source: Reimers and
// Gurevych 2019 (sentence-transformers), section 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "client/trainer.h"
#include "ir/job.h"

namespace meshwright::client {

inline constexpr const char* kEmbedProgram = "embed";

// How the states of a text's tokens, those around it among them, become its vector.
enum class Pooling : uint8_t {
  kMean,          // their mean
  kFirst,         // that of the first token: "cls"
  kLast,          // that of the last one
  kMeanSqrt,      // their sum over the root of their number
  kWeightedMean,  // their mean, the first counts once, the second twice and so on
};
// "mean", "cls", "last", "mean_sqrt", "weighted_mean". Errors: kInvalidArgument naming these.
Result<Pooling> ParsePooling(const std::string& name);
std::vector<std::string> PoolingNames();

struct EmbedRules {
  std::vector<Pooling> poolings = {Pooling::kMean};  // several: their vectors one behind the other
  bool normalised = false;                           // of length 1
};

struct EmbedShape {
  int64_t rows = 1;     // of a call
  int64_t tokens = 1;   // of a row
  int64_t vectors = 1;  // of a row: as many as its texts times poolings
  ir::DType dtype = ir::DType::kF32;
};

struct EmbedLimits {
  int64_t rows = 8;          // of a call at most
  int64_t positions = 0;     // that the model has; 0: any
  int64_t row_tokens = 256;  // of a row that no single text needs to be longer
  int64_t rows_divisor = 1;  // rows of a call are a multiple: of the replicas that share them
  ir::DType dtype = ir::DType::kF32;
};

using TextTokens = std::vector<int32_t>;

// A shape in which the texts fit. REQUIRES that none is empty or has more tokens than the model
// positions.
EmbedShape EmbedShapeFor(const std::vector<TextTokens>& texts, const EmbedRules& rules,
                         const EmbedLimits& limits);

// Errors: kUnimplemented: a model that makes no states of whole texts; what the functions do wrong.
Result<ir::JobProgram> EmbedProgram(const EmbedShape& shape, const TrainerFunctions& functions);

struct Embeddings {
  int64_t width = 0;
  std::vector<double> values;  // [texts, width]

  std::span<const double> of(size_t text) const {
    const auto size = static_cast<size_t>(width);
    return std::span(values).subspan(text * size, size);
  }
};

// The vectors of all texts, in their order. REQUIRES a shape in which they fit, and the rules that
// it was made for. Errors: those of the session; kDataLoss: an answer that is not of this shape.
Result<Embeddings> EmbedTexts(Session& session, const EmbedShape& shape,
                              const std::vector<TextTokens>& texts, const EmbedRules& rules);

}  // namespace meshwright::client
