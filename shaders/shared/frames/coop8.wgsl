// Matrices of 8 by 8.
const S = 8u;
alias MatrixA = coop_mat8x8<f16, A>;
alias MatrixB = coop_mat8x8<f16, B>;
alias MatrixC = coop_mat8x8<f32, C>;
