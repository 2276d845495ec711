// ViT: an encoder of images. An image is cut into patches, each of which one product makes a token
// of; a token of its own in front of them says in the end which class the image is of.
//
// Params carry the names and, on export, the layout of Hugging Face's ViTForImageClassification.
// Layers 0..layers-1 are the blocks; patches and positions belong to layer 0, head and loss to the
// last.
//
// Input: "pixels" i32[b, channels, image, image], 0 to 255, and "label" i32[b]. What transformers'
// image processor does to the numbers (a mean less, by a deviation) is a part of the graph.
//
// Thread rule: values. Source: Dosovitskiy et al. 2021.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct VitConfig {
  int64_t image = 224;  // pixels of a side
  int64_t patch = 16;   // of a side; divides image
  int64_t channels = 3;
  int64_t width = 768;
  int64_t inner = 3072;
  int64_t layers = 12;
  int64_t heads = 12;  // divides width
  int64_t labels = 2;  // classes
  bool biases = true;  // of queries, keys and values
  double dropout = 0;
  double attention_dropout = 0;
  double epsilon = 1e-12;
  Activation activation = Activation::kGeluErf;
  std::vector<double> mean = {};       // of each channel, of pixels in [0, 1]; empty: 0.5
  std::vector<double> deviation = {};  // likewise
  std::vector<std::string> label_names = {};

  int64_t head_size() const { return width / heads; }
  int64_t patches() const { return (image / patch) * (image / patch); }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const VitConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeVit(const VitConfig& config);

// Trained values by formula.
int64_t ParamCount(const VitConfig& config);

}  // namespace meshwright::models
