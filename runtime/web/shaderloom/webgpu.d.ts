// WebGPU's flags, which TypeScript's DOM library leaves out.
declare var GPUBufferUsage: Record<
  "MAP_READ" | "COPY_SRC" | "COPY_DST" | "UNIFORM" | "STORAGE" | "QUERY_RESOLVE", number
>;
declare var GPUMapMode: Record<"READ", number>;
declare var GPUShaderStage: Record<"COMPUTE", number>;
