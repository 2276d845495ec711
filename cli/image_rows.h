// Images become rows of pixels: what models are trained on that say the class of an image.
//
//   dataset_format   dataset_path
//   "images"         a folder with a folder for each class, in which its images are
//   "jsonl"          lines {"image": "a.png", "label": ..}; paths start at the file's folder
//
// An image is brought to the model's size, whatever its own is. Classes of a folder are those of
// the model by their names, where it has names, else in the order of their names. Images of folders
// are mixed, so that a part that is held out has all classes. What comes of it
// is two arrays of NumPy, kept beside the images under a name that is made of their paths, sizes
// and times: what is there is not made again.
//
// Thread rule: reads and writes files, on threads of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"
#include "ir/data_spec.h"
#include "models/registry.h"

namespace meshwright::cli {

struct LabelledImage {
  std::string path;
  int32_t label = 0;
};

// Of a folder of folders, or of files of lines. Errors: kInvalidArgument naming file and line, or
// the folder: no such class, no image; kNotFound.
Result<std::vector<LabelledImage>> ImagesOfFolder(const std::string& folder,
                                                  const models::ModelRows& rows);
Result<std::vector<LabelledImage>> ImagesOfLines(const std::vector<std::string>& files,
                                                 const models::ModelRows& rows);

struct ImageRows {
  std::string pixels;  // u8[images, channels, side, side]
  std::string labels;  // i32[images]
  bool made = false;   // false: they were there
};

// Of files and folders of files, whatever is in them: for what is asked about.
Result<std::vector<LabelledImage>> ImagesAt(const std::vector<std::string>& paths);

// Below `cache`, which is made. Errors: those of reading and decoding, naming the image.
Result<ImageRows> MakeImageRows(const std::vector<LabelledImage>& images,
                                const models::ModelRows& rows, const std::string& cache);

// The classes of a folder of images get its folders' names, where neither the job nor the model
// names them: they stand in the configuration then, and in what is exported. Returns whether it
// named them.
bool NameClasses(const models::Model& model, config::JobConfig& config);

// What a job of such a model reads. Errors name the key of the job file.
Result<ir::DataStream> FindImages(const config::JobConfig& config, const models::Model& model);

}  // namespace meshwright::cli
